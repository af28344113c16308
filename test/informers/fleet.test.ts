import { describe, expect, it } from 'vitest';
import { FLEET_SETTLE_SECONDS, type NodeFacts, supportsNativeSleep } from '../../src/core/decision/index.ts';
import { FleetVersions } from '../../src/informers/nodes.ts';
import { sampleNode } from '../core/decision/sample-snapshot.ts';

const node = (kubeletVersion: string, more: Partial<NodeFacts> = {}) =>
  sampleNode({ name: 'a', kubeletVersion, ...more });

/** A cluster whose nodes and API server are known. */
function known(apiServer: string, ...kubelets: string[]): FleetVersions {
  const fleet = new FleetVersions();
  for (const [index, version] of kubelets.entries()) fleet.putNode(node(version, { name: `node-${index}` }));
  fleet.nodesListed();
  fleet.apiServerIs(apiServer);
  return fleet;
}

describe('the versions of a cluster', () => {
  it('are no answer before both have been read', () => {
    const fleet = new FleetVersions();
    fleet.putNode(node('v1.28.0'));
    expect(fleet.observe(0)).toBeUndefined();
    fleet.nodesListed();
    expect(fleet.observe(0)).toBeUndefined();
    fleet.apiServerIs('v1.36.3');
    expect(fleet.observe(0)).toEqual({
      apiServer: { major: 1, minor: 36 },
      oldestKubelet: { major: 1, minor: 28 },
      nodes: [node('v1.28.0')],
    });
  });

  it('that cannot be parsed do not count', () => {
    const fleet = known('', 'v1.36.3');
    expect(fleet.observe(0)).toMatchObject({ apiServer: undefined, oldestKubelet: { major: 1, minor: 36 } });
  });

  it('answer otherwise only when that has held for ten minutes', () => {
    const fleet = known('v1.36.3', 'v1.36.3');
    const native = (seconds: number) => supportsNativeSleep(fleet.observe(seconds));
    expect(native(0)).toBe(true);
    fleet.putNode(node('v1.28.0', { name: 'old' }));
    expect([native(10), native(10 + FLEET_SETTLE_SECONDS - 1)]).toEqual([true, true]);
    expect(native(10 + FLEET_SETTLE_SECONDS)).toBe(false);
  });

  it('are passed on again when it changes where pods may run, while an answer is settling', () => {
    const fleet = known('v1.36.3', 'v1.36.3');
    const first = fleet.observe(0);
    expect(fleet.observe(1)).toBe(first);
    fleet.putNode(node('v1.28.0', { name: 'old' }));
    const second = fleet.observe(2);
    expect(second).toMatchObject({ oldestKubelet: { minor: 36 } });
    expect(second?.nodes.map(({ name }) => name)).toEqual(['node-0', 'old']);
    expect(fleet.observe(3)?.nodes).toBe(second?.nodes);
  });

  it('of a node that came and went in between change nothing', () => {
    const fleet = known('v1.36.3', 'v1.36.3');
    const native = (seconds: number) => supportsNativeSleep(fleet.observe(seconds));
    fleet.observe(0);
    fleet.putNode(node('v1.28.0', { name: 'old' }));
    fleet.observe(10);
    expect(fleet.deleteNode('old')).toBe(true);
    fleet.observe(300);
    fleet.putNode(node('v1.28.0', { name: 'old' }));
    expect(native(10 + FLEET_SETTLE_SECONDS)).toBe(true);
  });

  it.each([
    ['the same', node('v1.36.3'), false],
    ['another version', node('v1.36.4'), true],
    ['a virtual one', node('v1.36.3', { virtual: true }), true],
    ['another label', node('v1.36.3', { labels: { pool: 'b' } }), true],
  ])('say whether a node says anything new: %s', (_what, next, isNew) => {
    const fleet = new FleetVersions();
    expect(fleet.putNode(node('v1.36.3'))).toBe(true);
    expect(fleet.putNode(next)).toBe(isNew);
  });
});
