import { memo, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { Markdown } from '@/components/markdown';

const CURSOR = '\u200b'; // Chainlit's Markdown draws it as one

/* Blank lines part blocks, but not within code or a formula. Only the last block changes from one piece to the next. */
const split = (text) => {
  const blocks = [];
  let lines = [];
  let fence = '';
  for (const line of text.split('\n')) {
    const mark = line.trimStart().match(/^(`{3,}|~{3,}|\$\$)/)?.[1];
    if (!fence && mark) fence = mark;
    else if (fence && mark && mark.startsWith(fence)) fence = '';
    if (!fence && !line.trim()) {
      if (lines.length) blocks.push(lines.join('\n'));
      lines = [];
    } else lines.push(line);
  }
  if (lines.length) blocks.push(lines.join('\n'));
  return blocks;
};

const Block = memo(({ text }) => (
  <div>
    <Markdown latex renderMarkdown>
      {text}
    </Markdown>
  </div>
));

export default function Growing() {
  const [state, setState] = useState(() => window.firsttoken.answer(props.message));
  useEffect(() => {
    const look = () => setState(window.firsttoken.answer(props.message));
    look();
    return window.firsttoken.listen((id) => id === props.message && look());
  }, []);

  // The foot that takes this place shows a copy until Chainlit has drawn the whole answer, so that nothing blinks.
  const drawn = useRef(null);
  useLayoutEffect(() => () => window.firsttoken.keep(props.message, drawn.current?.cloneNode(true)), []);

  if (state?.waiting) {
    const { text, fraction, thought } = state.waiting;
    return (
      <div className="waiting" role="status">
        <p>{text}</p>
        {thought ? <p className="waiting-thought">{thought}</p> : <progress aria-label={text} max="1" value={fraction ?? undefined} />}
      </div>
    );
  }
  if (!state?.text) return <div className="growing-dots" />;
  const blocks = split(state.text);
  return (
    <div className="growing" ref={drawn}>
      {blocks.map((text, index) => (
        <Block key={index} text={index === blocks.length - 1 ? text + CURSOR : text} />
      ))}
    </div>
  );
}
