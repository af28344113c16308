import { canonicalAddress } from '../canonical-address.ts';
import { FOREIGN_LIMITS } from '../limits.ts';
import { authorityOf, endpointIn, LinePageReader, type PageFormatKind } from './page-reader.ts';

/**
 * The bits of srv_admin_state for maintenance by an operator, by the configuration, by another server, or for lack of an
 * address.
 */
const MAINTENANCE = 0x01 | 0x02 | 0x04 | 0x20 | 0x40;

/**
 * HAProxy's statistics as CSV (`/stats;csv`, `show stat`), or its `show servers state`. A server is out of use if it is in
 * maintenance, which includes one whose address has vanished from DNS, but not if its checks fail, because it may then come
 * back.
 */
class HaproxyReader extends LinePageReader {
  #columns: ReadonlyMap<string, number> = new Map();
  #first = '';
  #hasAddresses = false;
  #hasNameless = false;
  #isWide = false;

  protected token(line: string): void {
    if (line.startsWith('# pxname,')) this.#head(cellsOf(line.slice(2)));
    else if (line.startsWith('# be_id ')) this.#head(line.slice(2).split(' ', MOST_COLUMNS + 1));
    else if (this.#first === 'pxname') this.#statistics(cellsOf(line));
    else if (this.#first === 'be_id') this.#state(line.split(' ', MOST_COLUMNS));
  }

  protected override problem(): string | undefined {
    if (this.#isWide) return `has more than ${MOST_COLUMNS} columns`;
    const broken = super.problem();
    if (broken !== undefined) return broken;
    if (this.#first === '') return 'is neither statistics of HAProxy as CSV nor its servers’ state';
    if (!this.#hasAddresses && this.#hasNameless)
      return 'lists servers without their addresses, which `stats show-legends` shows';
    return undefined;
  }

  #head(columns: readonly string[]): void {
    this.#isWide ||= columns.length > MOST_COLUMNS;
    this.#columns = new Map(columns.map((name, at) => [name, at]));
    this.#first = columns[0] ?? '';
  }

  #cell(cells: readonly string[], column: string): string {
    return cells[this.#columns.get(column) ?? -1] ?? '';
  }

  #statistics(cells: readonly string[]): void {
    const name = this.#cell(cells, 'svname');
    if (name === 'FRONTEND' || name === 'BACKEND' || this.#cell(cells, 'type') !== '2') return;
    const inUse = !this.#cell(cells, 'status').startsWith('MAINT');
    this.#server(this.#cell(cells, 'addr'), inUse);
  }

  #state(cells: readonly string[]): void {
    const address = this.#cell(cells, 'srv_addr');
    const inUse = (Number(this.#cell(cells, 'srv_admin_state')) & MAINTENANCE) === 0;
    const isAddress = canonicalAddress(address) !== undefined;
    this.#server(isAddress ? authorityOf(address, Number(this.#cell(cells, 'srv_port'))) : address, inUse);
  }

  #server(text: string, inUse: boolean): void {
    const endpoint = endpointIn(text);
    this.#hasAddresses ||= endpoint !== undefined;
    this.#hasNameless ||= inUse && text === '';
    this.list(endpoint, inUse);
  }
}

/** HAProxy 3.2 has some 100. */
const MOST_COLUMNS = FOREIGN_LIMITS.page.parts.most;

/** Splits a line of CSV. A cell with a comma is quoted, and a quote within it is doubled. */
function cellsOf(line: string): readonly string[] {
  if (!line.includes('"')) return line.split(',', MOST_COLUMNS + 1);
  const cells: string[] = [];
  for (let at = 0; at <= line.length && cells.length <= MOST_COLUMNS; ) {
    const isQuoted = line[at] === '"';
    const close = isQuoted ? closingQuote(line, at + 1) : at;
    const comma = line.indexOf(',', close);
    const end = comma < 0 ? line.length : comma;
    cells.push(isQuoted ? line.slice(at + 1, close).replaceAll('""', '"') : line.slice(at, end));
    at = end + 1;
  }
  return cells;
}

function closingQuote(line: string, from: number): number {
  for (let at = line.indexOf('"', from); at >= 0; at = line.indexOf('"', at + 2))
    if (line[at + 1] !== '"') return at;
  return line.length;
}

export const HAPROXY = {
  path: '/stats;csv',
  page: '`/stats;csv` with `stats show-legends`, or `show servers state`',
  unless: 'its server is in maintenance',
  Reader: HaproxyReader,
} as const satisfies PageFormatKind;
