/* What Chainlit's page lacks: names for its icon buttons, a word on the model's server, and the system's own theme. */
(() => {
  'use strict';
  const chinese = document.documentElement.lang.startsWith('zh');
  const say = (en, zh) => (chinese ? zh : en);

  if (!localStorage.getItem('vite-ui-theme')) localStorage.setItem('vite-ui-theme', 'system');

  // Names for screen readers. The nodes are React's: attributes are added, nothing is moved.
  const names = {
    '#search-chats-button': say('Search chats', '搜索对话'),
    '#new-chat-button': say('New chat', '新建对话'),
    '#sidebar-trigger-button': say('Toggle the list of chats', '显示或隐藏对话列表'),
    '#upload-button, #upload-button-loading': say('Attach text or code', '附加文本或代码'),
    '#chat-settings-open-modal': say('Settings', '设置'),
    '#chat-submit': say('Send', '发送'),
    '#stop-button': say('Stop the answer', '停止回答'),
    '#user-nav-button': say('User menu', '用户菜单'),
    '#chat-input': say('Your question', '你的问题'),
    '#edit-chat-input': say('Edit your question', '编辑你的问题'),
    '.edit-message': say('Edit this question', '编辑此问题'),
    '#thread-options': say('Rename or delete', '重命名或删除'),
    '.message-content button:not(.foot *)': say('Copy the code', '复制代码'),
    '#attachments button': say('Remove the attachment', '移除附件'),
    '#chat-settings [role="switch"]': say('Back to the recommended values', '恢复推荐值'),
    'form .relative > button': say('Show the password', '显示密码'),
    'input[type="file"]': say('Attach text or code', '附加文本或代码')
  };
  let left = false; // whether a dialog has gone since the last look
  const name = () => {
    for (const [selector, label] of Object.entries(names))
      for (const node of document.querySelectorAll(selector))
        if (node.dataset.named !== label && !node.textContent.trim()) {
          node.dataset.named = label; // React may turn one button into another
          node.setAttribute('aria-label', label);
        }
    for (const node of document.querySelectorAll('button:not([aria-label]):not([data-named])')) {
      node.dataset.named = '';
      if (node.querySelector('svg.lucide-arrow-down') && !node.textContent.trim())
        node.setAttribute('aria-label', say('Scroll to the end', '滚动到底部'));
    }
    const scrolling = '.message-content :is(pre code, .katex-display):not([tabindex])';
    for (const node of document.querySelectorAll(scrolling)) node.tabIndex = 0;
    // A thread is a link around a button around a menu: the link and the menu are what a keyboard needs.
    for (const node of document.querySelectorAll('#thread-options:not([tabindex])')) {
      node.tabIndex = 0;
      node.setAttribute('role', 'button');
      const inner = node.closest('button');
      if (inner) {
        inner.tabIndex = -1;
        inner.setAttribute('role', 'group');
        inner.setAttribute('aria-label', inner.textContent);
      }
    }
    for (const node of document.querySelectorAll('ul[data-sidebar="menu"]:has(> div):not([role])')) node.setAttribute('role', 'none');
    const header = document.querySelector('#header > div:last-child');
    if (header && !document.querySelector('#export-all') && document.querySelector('#thread-history')) header.prepend(exportAll);
    const email = document.querySelector('form #email');
    if (email && !email.value) fillIn(email);
    // A dialog of Chainlit's leaves the focus nowhere when it closes: a keyboard goes on at the question.
    const nowhere = document.activeElement === document.body && !document.querySelector('[role="dialog"]');
    if (left && nowhere && matchMedia('(hover: hover)').matches) document.querySelector('#chat-input')?.focus();
    left = false;
  };
  // The page has one user: the form's name field is filled in and put away.
  const fillIn = (field) => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, 'owner');
    field.dispatchEvent(new Event('input', { bubbles: true }));
    field.parentElement.hidden = true;
    field.parentElement.style.display = 'none';
    document.querySelector('form #password')?.focus();
  };
  const exportAll = document.createElement('a');
  exportAll.id = 'export-all';
  exportAll.href = '/firsttoken/export';
  exportAll.download = 'chats.json';
  exportAll.title = say('Export all chats', '导出全部对话');
  exportAll.setAttribute('aria-label', exportAll.title);
  exportAll.innerHTML =
    '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M12 3v12m-5-5 5 5 5-5M4 17v2a2 2 0 0 0 2 2h12a2 2 0 0 0 2-2v-2"/></svg>';
  let planned = false;
  const holdsDialog = (node) =>
    node instanceof Element && (node.matches('[role="dialog"]') || node.querySelector('[role="dialog"]') !== null);
  const observer = new MutationObserver((changes) => {
    // Seen as it goes: one that was open for a moment may have been there at no look.
    left ||= changes.some(({ removedNodes }) => [...removedNodes].some(holdsDialog));
    if (planned) return;
    planned = true;
    setTimeout(() => {
      planned = false;
      name();
    }, 150);
  });
  observer.observe(document.body, { childList: true, subtree: true, attributeFilter: ['id'] });

  // Answers that are being written, by id: {text, waiting}. Growing.jsx draws them; what comes before it is there is kept.
  const answers = new Map();
  const listeners = new Set();
  const copies = new Map();
  window.firsttoken = {
    keep: (id, copy) => copies.set(id, copy),
    kept: (id) => copies.get(id),
    answer: (id) => answers.get(id),
    listen: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    }
  };
  window.addEventListener('message', (event) => {
    const { source, data } = event;
    if (source !== window || !data?.answer) return;
    event.stopImmediatePropagation(); // Chainlit would send it back to where it came from
    const { answer, text, more, waiting, thread } = data;
    const before = answers.get(answer)?.text ?? '';
    answers.set(answer, { text: text ?? before + (more ?? ''), waiting });
    for (const listener of listeners) listener(answer);
    // On a phone Chainlit gives a new chat its address only when the list of chats is opened, and then closes that list.
    if (location.pathname === '/' && matchMedia('(max-width: 767px)').matches)
      history.replaceState(history.state, '', `/thread/${thread}`);
  });

  // Esc stops an answer, unless it closes something. What closes by it prevents its default. While Chainlit counts anew
  // what is open (a dialog comes, a tooltip goes) nothing takes it and it would be lost: then it is pressed
  // again, for a second.
  let again = 0;
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.defaultPrevented) return;
    const open = [...document.querySelectorAll('[role="dialog"], [role="menu"]')];
    if (!open.length) document.querySelector('#stop-button')?.click();
    else
      setTimeout(() => {
        const lost = !event.defaultPrevented && open.some((node) => node.isConnected && node.dataset.state === 'open');
        again = lost && again < 20 ? again + 1 : 0;
        if (again)
          document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true, cancelable: true }));
      }, 50);
  });

  // Copying also where the browser grants no clipboard: a page over plain HTTP that is not on this machine.
  if (!navigator.clipboard) {
    const writeText = async (text) => {
      const area = document.createElement('textarea');
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    };
    const write = async ([item]) => writeText(await (await item.getType('text/plain')).text());
    Object.defineProperty(navigator, 'clipboard', { value: { write, writeText } });
  }

  // How the model's server is: nothing while it is well.
  const bar = document.createElement('div');
  bar.id = 'server-state';
  bar.setAttribute('role', 'status');
  bar.hidden = true;
  document.body.append(bar);
  let lost = say('The connection to this page is lost. Trying again…', '与页面的连接已断开，正在重试……');
  let timer;
  const show = (text, fraction) => {
    bar.hidden = false;
    bar.replaceChildren(text);
    if (fraction === undefined) return;
    const progress = document.createElement('progress');
    progress.max = 1;
    if (fraction !== null) progress.value = fraction;
    progress.setAttribute('aria-label', text);
    bar.append(progress);
  };
  const look = async () => {
    clearTimeout(timer);
    let pause = 1500;
    if (location.pathname.startsWith('/login')) {
      timer = setTimeout(look, pause);
      return; // nobody is told before a login
    }
    try {
      const response = await fetch('/firsttoken/state');
      const state = response.status === 401 ? { state: 'ready' } : await response.json();
      if (state.state === 'ready') {
        if (!bar.hidden) {
          show(state.back);
          setTimeout(() => (bar.hidden = true), 2500);
        }
        pause = 8000;
      } else show(state.text, state.state === 'loading' ? state.fraction : undefined);
    } catch {
      show(lost);
    }
    timer = setTimeout(look, document.hidden ? 30000 : pause);
  };
  document.addEventListener('visibilitychange', () => document.hidden || look());
  look();
  name();
  for (const element of ['Growing', 'AnswerFoot']) fetch(`/public/elements/${element}.jsx`); // the first answer finds them here
})();
