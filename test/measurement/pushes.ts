import { BrokenPush, pushIn } from '../../src/measurement/xds/xds.ts';

/** A field of the protobuf encoding that holds bytes. */
export function field(number: number, ...parts: readonly Buffer[]): Buffer {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const head = [(number << 3) | 2];
  for (let rest = length; ; rest >>>= 7) {
    head.push(rest < 128 ? rest : (rest & 127) | 128);
    if (rest < 128) return Buffer.concat([Buffer.from(head), ...parts]);
  }
}

/** The address and port of an endpoint. */
export function socket(address: string): Buffer {
  return field(1, field(1, field(2, Buffer.from(address))));
}

/** A push of one cluster with these endpoints. */
export function push(...endpoints: readonly Buffer[]): Buffer {
  const assignment = field(2, ...endpoints.map((endpoint) => field(2, endpoint)));
  return field(2, field(2, field(2, assignment)), field(3, Buffer.from('outbound|80||web')));
}

export function repeated(part: Buffer, bytes: number): Buffer {
  return Buffer.alloc(Math.floor(bytes / part.length) * part.length, part);
}

/** Reads what an istiod may have sent. Throws where that fails in a way that is not foreseen. */
export function takePush(data: Uint8Array): void {
  try {
    const reading = pushIn(Buffer.from(data));
    while (reading.next().done !== true);
  } catch (thrown) {
    if (!(thrown instanceof BrokenPush)) throw thrown;
  }
}
