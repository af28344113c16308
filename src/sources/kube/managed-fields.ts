const BEGIN = ',"managedFields":[';
/** The ends of the last entry, the entries, the metadata, the object and the event. */
const END = '}]}}}';

/**
 * A watch event of metadata only, without its managedFields: two thirds of the bytes, and most of the time that parsing
 * takes. An event of another form is returned as it is.
 *
 * They are the last field of ObjectMeta, which is the last of PartialObjectMetadata, and Go writes fields in the order
 * of their declaration (k8s.io/apimachinery pkg/apis/meta/v1). The text looked for can stand nowhere else: within a
 * string its quotes would be escaped, and what labels and annotations hold under such a name is a string, not an array.
 */
export function withoutManagedFields(event: string): string {
  const begin = event.indexOf(BEGIN);
  return begin < 0 || !event.endsWith(END) ? event : `${event.slice(0, begin)}}}}`;
}
