import { patchFor } from '../core/patch/patch.ts';
import type { Pod } from '../core/plan/pod.ts';
import { editManifests, type ManifestEdit, type ManifestFile } from '../manifest/index.ts';
import { summaryOf } from '../render/explanation.ts';
import type { InjectSettings } from '../settings/commands.ts';
import { type PlannedWorkload, planManifests } from './manifests.ts';
import type { Terminal } from './terminal.ts';

/**
 * `linger inject`: manifests in, manifests out, with hooks and grace put in where the decision says so. All is
 * worked out before the first byte is printed, so that an error leaves standard output empty.
 * @returns the exit code
 * @throws LingerError
 */
export async function inject(settings: InjectSettings, terminal: Terminal): Promise<number> {
  const { files, planned } = await planManifests({ ...settings, modeLimit: 'Enforce' });
  const edited = files.map((file) =>
    editManifests(file, planned.filter((each) => each.file === file).flatMap(editsOf)),
  );
  for (const each of planned) terminal.warn(`${summaryOf(each)}\n`);
  for (const { notes } of edited) for (const note of notes) terminal.warn(`${note}\n`);
  terminal.print(
    joinTexts(edited.map(({ text }, index) => ({ text, format: files[index]?.format ?? 'yaml' }))),
  );
  return 0;
}

function editsOf({ object, workload, decision }: PlannedWorkload): readonly ManifestEdit[] {
  if (decision.policy?.mode.value === 'Audit') return [];
  if (decision.outcome === 'skip' && decision.withdrawn === undefined) return [];
  const operations = patchFor(workload.pod as Pod, decision);
  return operations.length === 0 ? [] : [{ object, operations, at: workload.pointer }];
}

/**
 * One file comes out as it is; several become one stream, as kubectl reads it. JSON is YAML, so one YAML file among
 * them makes a YAML stream of all.
 */
function joinTexts(texts: readonly Pick<ManifestFile, 'text' | 'format'>[]): string {
  const separator = texts.some(({ format }) => format === 'yaml') ? '---\n' : '';
  return texts.reduce((stream, { text }, index) => {
    if (index === 0) return text;
    const ended = stream === '' || stream.endsWith('\n') ? stream : `${stream}\n`;
    // A byte order mark is one only at the very beginning.
    const content = text.replace(/^\uFEFF/, '');
    return ended + (content.startsWith('---') ? '' : separator) + content;
  }, '');
}
