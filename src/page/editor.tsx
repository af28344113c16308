import { useRef } from 'preact/hooks';
import type { TextProblemAt } from '../core/report/index.ts';

interface EditorProps {
  readonly label: string;
  readonly hint: string;
  readonly text: string;
  readonly problems: readonly TextProblemAt[];
  readonly rows: number;
  readonly onChange: (text: string) => void;
}

/** For longer texts, laying out all line numbers again at each key press would take too long. */
const MOST_NUMBERED = 5_000;
const MOST_PROBLEMS = 20;
/** Characters. A browser pastes less than this by itself without delay. */
const LARGE = 2_000;

/** A text with line numbers. Its problems are listed below, each leading to its line. */
export function Editor({ label, hint, text, problems, rows, onChange }: EditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const id = `text-${label.toLowerCase()}`;
  const count = linesIn(text);

  const paste = (event: ClipboardEvent) => {
    const field = area.current;
    const pasted = event.clipboardData?.getData('text/plain').replaceAll(/\r\n?/g, '\n') ?? '';
    if (field === null || pasted.length < LARGE) return;
    event.preventDefault();
    const after = text.slice(0, field.selectionStart) + pasted + text.slice(field.selectionEnd);
    const at = field.selectionStart + pasted.length;
    keepForUndo(label, text, after);
    onChange(after);
    requestAnimationFrame(() => field.setSelectionRange(at, at));
  };
  const undo = (event: KeyboardEvent) => {
    if (event.key !== 'z' || !(event.ctrlKey || event.metaKey) || event.shiftKey) return;
    const last = replaced.get(label)?.at(-1);
    if (last?.after !== text) return;
    event.preventDefault();
    replaced.get(label)?.pop();
    onChange(last.before);
  };
  const goTo = (line: number) => {
    const field = area.current;
    if (field === null) return;
    const lines = text.split('\n');
    const start = lines.slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
    field.focus();
    field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    field.scrollTop = (field.scrollHeight / lines.length) * (line - 4);
  };
  return (
    <div class="editor">
      <label for={id}>
        {label} <small id={`${id}-hint`}>{hint}</small>
      </label>
      <div class="lines">
        {count <= MOST_NUMBERED && (
          <div class="gutter" ref={gutter} aria-hidden="true">
            {Array.from({ length: count }, (_, index) => index + 1).join('\n')}
          </div>
        )}
        <textarea
          id={id}
          ref={area}
          rows={rows}
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          wrap="off"
          aria-describedby={`${id}-hint ${id}-problems`}
          aria-invalid={problems.length > 0}
          value={text}
          onInput={({ currentTarget: { value } }) => onChange(value)}
          onPaste={paste}
          onKeyDown={undo}
          onScroll={({ currentTarget: { scrollTop } }) => {
            if (gutter.current !== null) gutter.current.scrollTop = scrollTop;
          }}
        />
      </div>
      <ul class="problems" id={`${id}-problems`} aria-live="polite">
        {problems.slice(0, MOST_PROBLEMS).map(({ line, text: reason }) => (
          <li key={`${line} ${reason}`}>
            {line === null ? (
              reason
            ) : (
              <>
                <button type="button" onClick={() => goTo(line)}>
                  Line {line}
                </button>
                {reason}
              </>
            )}
          </li>
        ))}
        {problems.length > MOST_PROBLEMS && <li>and {problems.length - MOST_PROBLEMS} more</li>}
      </ul>
    </div>
  );
}

function linesIn(text: string): number {
  let count = 1;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) count += 1;
  return count;
}

/** By editor: the text that was replaced by something large, and that new text. */
const replaced = new Map<string, { readonly before: string; readonly after: string }[]>();

/**
 * Keeps what Ctrl+Z should restore. A text area's own undo history only covers what the browser inserts itself, which takes
 * it minutes for some thousand lines.
 */
export function keepForUndo(label: string, before: string, after: string): void {
  replaced.set(label, [...(replaced.get(label) ?? []).slice(1 - MOST_UNDONE), { before, after }]);
}

const MOST_UNDONE = 10;
