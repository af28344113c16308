import { isRecord, jsonIn } from '../json.ts';
import { endpointIn, type PageFormatKind, PageReader } from './page-reader.ts';

/** The answer of `linger witness` for an address. */
const WITNESSED: readonly unknown[] = ['using', 'listed', 'absent'];
const LONGEST_ANSWER = 16 * 1024;

/** The answer of `linger witness`: an object from `ADDRESS:PORT` to what its page shows. */
class WitnessReader extends PageReader {
  #text = '';

  write(text: string): void {
    if (this.#text.length <= LONGEST_ANSWER) this.#text += text;
  }

  protected problem(): string | undefined {
    const strange = 'is not what linger witness answers';
    const json = this.#text.length > LONGEST_ANSWER ? undefined : jsonIn(this.#text);
    if (!isRecord(json)) return strange;
    for (const [name, said] of Object.entries(json)) {
      const endpoint = endpointIn(name);
      if (endpoint === undefined || !WITNESSED.includes(said)) return strange;
      if (said !== 'absent') this.list(endpoint, said === 'using');
    }
    return undefined;
  }
}

export const WITNESS = {
  path: '/v1/uses',
  page: '`linger witness`',
  unless: 'the page behind it says so',
  Reader: WitnessReader,
} as const satisfies PageFormatKind;
