import { PageFindings, type XdsSpec } from '../../src/core/api/index.ts';
import { Istiods } from '../../src/measurement/xds/xds.ts';
import { WEB } from './following.ts';

interface IstiodsOptions {
  readonly files?: string | undefined;
  /** Namespace of the follower. Default: linger. */
  readonly namespace?: string;
  /** Namespace of the Service `web`. */
  readonly of?: string;
  readonly clock?: () => number;
  readonly signal: AbortSignal;
}

/** Follows the Service web. @returns what is in use of it, or why that is not known */
export async function followWeb(
  spec: XdsSpec,
  {
    files,
    namespace = 'linger',
    of = WEB.namespace,
    clock = () => performance.now(),
    signal,
  }: IstiodsOptions,
) {
  const context = { files, namespace, allowLinkLocal: false, signal, random: () => 0, clock };
  const istiods = new Istiods(spec, context);
  istiods.follow([{ ...WEB, namespace: of }]);
  const found = await istiods.instances(signal);
  if ('reason' in found) throw new Error(found.message);
  const [instance] = found.pages;
  if (instance === undefined) throw new Error('there is no istiod');
  const find = (addresses: readonly string[], services = [{ namespace: of, name: 'web' }]) => {
    const wanted = addresses.map((address) => ({ address, ports: [8080] }));
    const outcome = istiods.find(instance, { wanted, services, url: instance.url });
    return outcome instanceof PageFindings ? wanted.map((each) => outcome.of(each)) : outcome.message;
  };
  return { istiods, find };
}
