/** Reasons whose name would be misleading as words. */
const CAUSES: Readonly<Record<string, string>> = {
  NotInjected: 'no wait',
  GraceEaten: 'killed in its own hook',
  NoOtherEndpoint: 'no other endpoint',
  AuditOnly: 'mode Audit',
};

/** The reason of a finding as a page writes it: `HookTooShort` as `hook too short`. */
export function causeInWords(reason: string): string {
  return CAUSES[reason] ?? reason.replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter}`).toLowerCase();
}
