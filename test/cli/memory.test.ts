import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { emptyDirectory, MAIN, run } from './linger.ts';

const MB = 1e6;
const SAYS_MOST = `data:text/javascript,${encodeURIComponent(
  'process.on("exit", () => process.stderr.write("most " + process.resourceUsage().maxRSS + " kB"))',
)}`;

const filled = (bytes: number, line: (index: number) => string) => {
  const lines: string[] = [];
  for (let [index, length] = [0, 0]; length < bytes; index += 1) {
    const next = line(index);
    lines.push(next);
    length += next.length;
  }
  return lines.join('');
};

const deployment = (name: string, env: string) => `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ${name}}
spec:
  template:
    spec:
      containers:
        - name: app
          ports: [{containerPort: 8080}]
          env:
${env}`;
const variable = (index: number) => `            - {name: V${index}, value: "the value of ${index}"}\n`;

/** In MB, of which Node and Linger take some 80 with nothing to do; what is left to V8 to collect comes on top of the text. */
it.each<[string, string, number]>([
  ['one workload of 1 MB', deployment('web', filled(MB, variable)), 200],
  ['4 MB of workloads', filled(4 * MB, (index) => deployment(`web-${index}`, filled(500, variable))), 150],
  [
    'one text of 50 MB',
    `apiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n${filled(50 * MB, (index) => `    line ${index} of a long text\n`)}`,
    10 * 50,
  ],
])('%s is read within its memory', async (what, text, most) => {
  const file = join(await emptyDirectory(), 'large.yaml');
  await writeFile(file, text);
  const shell = '"$0" --import "$1" "$2" inject "$3" >/dev/null';
  const { code, stderr } = await run('sh', ['-c', shell, process.execPath, SAYS_MOST, MAIN, file]);
  const [, kilobytes] = /most (\d+) kB$/.exec(stderr) ?? [];
  expect([code, kilobytes]).toEqual([0, expect.any(String)]);
  console.log(`${what}: at most ${Math.round(Number(kilobytes) / 1000)} MB`);
  expect(Number(kilobytes) / 1000).toBeLessThan(most);
});
