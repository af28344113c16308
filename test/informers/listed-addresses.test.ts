import { expect, it } from 'vitest';
import { ListedAddresses } from '../../src/informers/index.ts';

const MOST = 400_000;
const addresses = (count: number) =>
  Array.from({ length: count }, (_, n) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);
const isWeb = (service: string) => service === 'shop/web';

it('an address is listed while any object of the Service lists it, and remembered for 10 s', () => {
  let now = 0;
  const listed = new ListedAddresses(() => now);
  const find = () => Object.fromEntries(listed.find(['10.0.0.1', '10.0.0.2'], isWeb));
  listed.set('a', 'shop/web', ['10.0.0.1', '10.0.0.2', '10.0.0.1']);
  listed.set('b', 'shop/web', ['10.0.0.1']);
  listed.set('c', 'shop/other', ['10.0.0.2']);
  expect(find()).toEqual({ '10.0.0.1': true, '10.0.0.2': true });
  now = 5;
  listed.set('a', 'shop/web', ['10.0.0.3']);
  expect(find()).toEqual({ '10.0.0.1': true, '10.0.0.2': 5 });
  // The object is gone; of whom it was is no longer known to who says so.
  listed.set('b', 'shop/undefined');
  expect(find()).toEqual({ '10.0.0.1': 5, '10.0.0.2': 5 });
  now = 10_005;
  expect(find()).toEqual({});
  expect(listed.has('a')).toBe(true);
  expect(listed.has('b')).toBe(false);
});

it('nothing is known while an object is left out for want of room', () => {
  const listed = new ListedAddresses(() => 0);
  listed.set('a', 'shop/web', addresses(MOST));
  expect(listed.trouble).toBeUndefined();
  listed.set('b', 'shop/web', ['10.200.0.1']);
  const tooMany = 'list more than 400000 addresses';
  expect(listed.trouble).toBe(tooMany);
  listed.set('a', 'shop/web', ['10.0.0.1']);
  expect(listed.trouble).toBe(tooMany);
  listed.set('b', 'shop/web', ['10.200.0.1']);
  expect(listed.trouble).toBeUndefined();
  expect([...listed.find(['10.200.0.1'], isWeb)]).toEqual([['10.200.0.1', true]]);
  listed.set('c', 'shop/web', addresses(MOST));
  expect(listed.trouble).toBe(tooMany);
  listed.set('c', 'shop/web');
  expect(listed.trouble).toBeUndefined();
});
