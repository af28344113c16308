import type { ExplanationReport } from '../dashboard/index.ts';
import { Head, Name, Verdict, type VerdictTone } from './parts.tsx';

type Plan = ExplanationReport['plan'];

const BUILT_IN = 'built-in';

/** The decision for the pods of one workload, and where each value comes from. */
export function ExplainedPlan(props: Pick<ExplanationReport, 'plan' | 'stands' | 'helps' | 'because'>) {
  const { plan, because } = props;
  const { kind, namespace, name, notes, fields } = plan;
  const [tone, word] = verdictOf(props);
  const own = fields.filter(({ origin, ignored }) => origin !== BUILT_IN || ignored !== undefined);
  return (
    <article class="plan">
      <h2>
        <Name>{name}</Name>
        <small>
          {kind} in <Name>{namespace}</Name>
        </small>
      </h2>
      <p class="word">
        <Verdict tone={tone}>{word}</Verdict> {because}
      </p>
      {plan.waitSeconds !== null && (
        <dl class="facts">
          {factsOf(plan).map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
      {plan.estimate !== null && <p class="quiet">{plan.estimate.text}</p>}
      {plan.admitted !== null && <p class="quiet">The webhook gives its pods: {plan.admitted}</p>}
      {plan.observers.length > 0 && (
        <p class="quiet">
          Measured, but no wait considers them (mode Observe): <Name>{plan.observers.join(', ')}</Name>
        </p>
      )}
      {notes.length > 0 && (
        <ul class="notes">
          {notes.map(({ code, text }) => (
            <li key={code + text}>
              <b>{code}</b> {text}
            </li>
          ))}
        </ul>
      )}
      {own.length > 0 && <Layers title="Set by a policy, a namespace or the pod itself" fields={own} />}
      {fields.length > 0 && (
        <details>
          <summary>Where each value comes from</summary>
          <Layers title="All values" fields={fields} />
        </details>
      )}
    </article>
  );
}

/** Must not be good news below a row which says that requests are lost. */
function verdictOf(of: Pick<ExplanationReport, 'plan' | 'stands' | 'helps'>): readonly [VerdictTone, string] {
  const { outcome, mode, reason } = of.plan;
  if (outcome === 'unknown') return ['open', 'Unknown.'];
  if (outcome === 'skip') return ['idle', `Left as it is: ${reason}.`];
  if (mode === 'Audit') return ['open', 'Would wait, but mode Audit changes nothing.'];
  if (of.stands) return ['good', 'Waits.'];
  return of.helps
    ? ['open', 'Would wait with this patch, or with Linger’s webhook.']
    : ['open', 'Would wait, which alone does not end the loss.'];
}

function factsOf({ waitSeconds, baseGraceSeconds, graceSeconds, hook, containers }: Plan) {
  return [
    ['Wait', seconds(waitSeconds)],
    ['Grace period', `${seconds(baseGraceSeconds)} → ${seconds(graceSeconds)}`],
    ['Hook', hook ?? ''],
    [containers.length === 1 ? 'Container' : 'Containers', containers.join(', ')],
  ] as const;
}

function Layers({ title, fields }: { readonly title: string; readonly fields: Plan['fields'] }) {
  return (
    <table>
      <caption>{title}</caption>
      <Head words={['Field', 'Value', 'From']} />
      <tbody>
        {fields.map(({ field, value, origin, ignored = [] }) => (
          <tr key={field}>
            <th scope="row">{field}</th>
            <td>{shown(value)}</td>
            <td class={origin === BUILT_IN ? 'quiet' : undefined}>
              <Name>{origin}</Name>
              {ignored.map((each) => (
                <div key={each.origin} class="quiet">
                  {shown(each.value)} from <Name>{each.origin}</Name> ignored: {each.because}
                </div>
              ))}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function shown(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  return value.length === 0 ? '(none)' : value.join(', ');
}

function seconds(value: number | null): string {
  return value === null ? '–' : `${value} s`;
}
