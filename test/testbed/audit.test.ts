import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { auditPosition, readRefusals } from './audit.ts';

const LINGER = 'system:serviceaccount:linger:linger';

function line(username: string, verb: string, requestURI: string, decision: string, code: number): string {
  return `${JSON.stringify({
    stage: 'ResponseComplete',
    verb,
    requestURI,
    user: { username },
    responseStatus: { code },
    annotations: { 'authorization.k8s.io/decision': decision },
  })}\n`;
}

it('tells what a user had no right to, from a position on', () => {
  const directory = mkdtempSync(join(tmpdir(), 'linger-audit-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const file = join(directory, 'audit.log');
  writeFileSync(file, line(LINGER, 'list', '/api/v1/secrets', 'forbid', 403));
  const position = auditPosition(file);
  const after = [
    line(LINGER, 'list', '/api/v1/nodes?limit=500', 'forbid', 403),
    line(LINGER, 'get', '/version', 'allow', 200),
    // Allowed, and yet 403: the namespace is being deleted.
    line(LINGER, 'create', '/api/v1/namespaces/shop/events', 'allow', 403),
    line('system:serviceaccount:shop:linger', 'list', '/api/v1/pods', 'forbid', 403),
  ];
  writeFileSync(file, after.join(''), { flag: 'a' });
  expect(readRefusals(file, LINGER, position)).toEqual(['list /api/v1/nodes?limit=500']);
  expect(readRefusals(file, LINGER)).toHaveLength(2);
});
