import { expect, it, onTestFinished } from 'vitest';
import { playground } from '../../src/cli/playground.ts';
import { playgroundReport } from '../../src/dashboard/index.ts';
import { close } from '../../src/webhook/index.ts';
import { longestTurn } from '../webhook/longest-turn.ts';

const DEPLOYMENT = (name: string) => `apiVersion: apps/v1
kind: Deployment
metadata: {name: ${name}}
spec:
  selector: {matchLabels: {app: ${name}}}
  template:
    metadata: {labels: {app: ${name}}}
    spec: {containers: [{name: app, image: app, ports: [{containerPort: 80}]}]}
`;

it('a large manifest is explained without holding up the event loop that answers reviews', async () => {
  const { server, address } = await playground('0.0.0', 0, (error) => expect.fail(error.message));
  onTestFinished(() => close(server));
  const [base = '', token = ''] = address.split('#token=');
  const texts = Array.from({ length: 1_500 }, (_, each) => DEPLOYMENT(`web-${each}`));
  const explained = async () => {
    const answer = await fetch(`${base}api/v1/explain`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ manifest: texts.join('---\n'), policies: '' }),
    });
    return answer.text();
  };
  let text = '';
  const longest = await longestTurn(async () => {
    text = await explained();
  });
  expect(playgroundReport.parse(JSON.parse(text)).plans).toHaveLength(1_500);
  // On the event loop it took seconds.
  expect(longest).toBeLessThan(250);
}, 120_000);
