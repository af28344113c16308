import { BrokenPush, pushIn } from '../../src/measurement/xds/xds.ts';

/** Reads what an istiod may have sent. Throws where that fails in a way that is not foreseen. */
export function takePush(data: Uint8Array): void {
  try {
    const reading = pushIn(Buffer.from(data));
    while (reading.next().done !== true);
  } catch (thrown) {
    if (!(thrown instanceof BrokenPush)) throw thrown;
  }
}
