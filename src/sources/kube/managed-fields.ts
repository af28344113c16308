import type { Resource } from './resource.ts';

const BEGIN = Buffer.from(',"managedFields":[{');

/** How an object of metadata only ends when it has managedFields: the last entry, the entries, metadata, object. */
const END = { item: Buffer.from('}]}}'), event: Buffer.from('}]}}}') };

/** An object as an item of a list, or a watch event with an object in it. */
export type Frame = keyof typeof END;

/**
 * Parses objects without their managedFields: two thirds of the bytes of a pod's metadata, and most of the time that
 * parsing takes. They are skipped as bytes, and never become text. An object of another form is parsed as it is.
 *
 * They are the last field of ObjectMeta, and Go writes fields in the order of their declaration (k8s.io/apimachinery
 * pkg/apis/meta/v1). What marks their beginning and their end has a quote in it that stands outside of any string, as
 * one within would be escaped: neither can be written by whoever names a label or a field manager. Their entries have
 * no arrays (FieldsV1 is objects only); had they any, what is left would not be JSON, and the whole is parsed.
 */
export class SparingParser {
  readonly #metadataOnly: boolean;
  /** The end of the entries, and what follows the metadata. */
  readonly #following: Buffer | undefined;

  constructor({
    metadataOnly = false,
    afterMetadata,
  }: Pick<Resource<unknown>, 'metadataOnly' | 'afterMetadata'>) {
    this.#metadataOnly = metadataOnly;
    this.#following = afterMetadata === undefined ? undefined : Buffer.from(`}]},"${afterMetadata}":`);
  }

  /** @throws SyntaxError when it is not JSON */
  parse(bytes: Buffer, frame: Frame): unknown {
    const text = this.#shortened(bytes, frame);
    if (text !== undefined) {
      try {
        return JSON.parse(text);
      } catch {
        // Not of the form that it seemed to be.
      }
    }
    return JSON.parse(bytes.toString());
  }

  #shortened(bytes: Buffer, frame: Frame): string | undefined {
    if (!this.#metadataOnly && this.#following === undefined) return undefined;
    const begin = bytes.indexOf(BEGIN);
    if (begin < 0) return undefined;
    if (this.#following !== undefined) {
      const end = bytes.indexOf(this.#following, begin);
      return end < 0 ? undefined : bytes.toString('utf8', 0, begin) + bytes.toString('utf8', end + 2);
    }
    const tail = END[frame];
    const end = bytes.length - tail.length;
    return bytes.indexOf(tail, end) < 0
      ? undefined
      : bytes.toString('utf8', 0, begin) + bytes.toString('latin1', end + 2);
  }
}
