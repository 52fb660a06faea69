import { useLayoutEffect, useRef, useState } from 'react';
import { toast } from 'sonner';
import { useChatData, useChatMessages } from '@chainlit/react-client';
import { Check, Copy, Download, RefreshCw, TriangleAlert } from 'lucide-react';
import { Button } from '@/components/ui/button';

const find = (messages, id) => {
  for (const message of messages || []) {
    const found = message.id === id ? message : find(message.steps, id);
    if (found) return found;
  }
};

export default function AnswerFoot() {
  const { loading } = useChatData();
  const { messages } = useChatMessages();
  const [copied, setCopied] = useState(false);
  const { figures, notices, error, thought, labels, message, thread } = props;
  const step = find(messages, message);
  const text = step?.metadata?.text || step?.output;

  const place = useRef(null);
  useLayoutEffect(() => {
    const copy = step?.output ? undefined : window.firsttoken.kept(message);
    place.current.replaceChildren(...(copy ? [copy] : []));
  }, [step?.output]);

  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), 2000);
    } catch (failure) {
      toast.error(String(failure));
    }
  };
  const again = () => callAction({ name: 'regenerate', payload: { message } });

  return (
    <div className="foot">
      <div ref={place} />
      {thought ? (
        <details className="foot-thought">
          <summary>{labels.thinking}</summary>
          <div>{thought}</div>
        </details>
      ) : null}
      {error ? (
        <p className="foot-error" role="alert">
          <TriangleAlert aria-hidden="true" />
          <span>{error}</span>
        </p>
      ) : null}
      {notices.map((notice) => (
        <p className="foot-notice" key={notice}>
          {notice}
        </p>
      ))}
      <div className="foot-row">
        {error ? (
          <Button variant="outline" size="sm" onClick={again} disabled={loading}>
            <RefreshCw aria-hidden="true" />
            {labels.again}
          </Button>
        ) : (
          <Button variant="ghost" size="icon" title={labels.again} aria-label={labels.again} onClick={again} disabled={loading}>
            <RefreshCw aria-hidden="true" />
          </Button>
        )}
        {text ? (
          <>
            <Button variant="ghost" size="icon" title={labels.copy} aria-label={copied ? labels.copied : labels.copy} onClick={copy}>
              {copied ? <Check aria-hidden="true" /> : <Copy aria-hidden="true" />}
            </Button>
            <Button variant="ghost" size="icon" asChild>
              <a href={`/firsttoken/export/${thread}`} download title={labels.export} aria-label={labels.export}>
                <Download aria-hidden="true" />
              </a>
            </Button>
          </>
        ) : null}
        {figures ? <span className="foot-figures">{figures}</span> : null}
      </div>
    </div>
  );
}
