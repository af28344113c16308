import { useState } from 'preact/hooks';
import { useEvent } from './live.tsx';

// What follows `#` in the page’s address, which no browser sends: the address of the workload that is open, as in
// `#Deployment/shop/web`, beside what has a name of its own, as `m=…`.

const isAddress = (part: string) => part !== '' && !part.includes('=');
const partsOf = (hash: string) => hash.replace(/^#/, '').split('&');

/** The address of the workload that is open; empty: none is. */
export function openedIn(hash: string): string {
  try {
    return decodeURIComponent(partsOf(hash).find(isAddress) ?? '');
  } catch {
    return '';
  }
}

/** @param address empty: none is open @returns with its `#`, or empty */
export function withOpened(hash: string, address: string): string {
  const others = partsOf(hash).filter((part) => part !== '' && !isAddress(part));
  const own = address === '' ? [] : [encodeURIComponent(address).replaceAll('%2F', '/')];
  const parts = [...others, ...own];
  return parts.length === 0 ? '' : `#${parts.join('&')}`;
}

/** The address of the workload that is open, empty without one, and how to open another. */
export function useOpened(): readonly [address: string, open: (address: string) => void] {
  const [opened, setOpened] = useState(() => openedIn(location.hash));
  useEvent(window, 'hashchange', () => setOpened(openedIn(location.hash)));
  const open = (address: string) => {
    history.replaceState(null, '', location.href.replace(/#.*/s, '') + withOpened(location.hash, address));
    setOpened(address);
  };
  return [opened, open];
}
