/** The operations of RFC 6902 that Linger uses. */
export type Operation =
  | { readonly op: 'add' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string };

/** A JSON pointer (RFC 6901) to a member of what `parent` points to. */
export function pointer(parent: string, ...members: readonly (string | number)[]): string {
  let path = parent;
  for (const member of members) path += `/${escapeMember(String(member))}`;
  return path;
}

/** `~` first, or the `~1` of a slash would be escaped again. */
function escapeMember(member: string): string {
  return member.includes('~') || member.includes('/')
    ? member.replaceAll('~', '~0').replaceAll('/', '~1')
    : member;
}
