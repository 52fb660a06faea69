export default function Waiting() {
  const { text, fraction, thought } = props;
  return (
    <div className="waiting" role="status">
      <p>{text}</p>
      {thought ? <p className="waiting-thought">{thought}</p> : <progress aria-label={text} max="1" value={fraction ?? undefined} />}
    </div>
  );
}
