import { useState } from 'preact/hooks';
import { useEvent } from './live.tsx';

// What follows `#` in the page’s address, which browsers never send: the address of the open workload, as in
// `#Deployment/shop/web`, and values with names of their own, as in `m=…`.

const isAddress = (part: string) => part !== '' && !part.includes('=');
const partsOf = (hash: string) => hash.replace(/^#/, '').split('&');

/** The address of the open workload; empty: none is open. */
export function openedIn(hash: string): string {
  try {
    return decodeURIComponent(partsOf(hash).find(isAddress) ?? '');
  } catch {
    return '';
  }
}

/** @param address empty: no workload is open @returns the fragment with its `#`, or an empty string */
export function withOpened(hash: string, address: string): string {
  const others = partsOf(hash).filter((part) => part !== '' && !isAddress(part));
  const own = address === '' ? [] : [encodeURIComponent(address).replaceAll('%2F', '/')];
  const parts = [...others, ...own];
  return parts.length === 0 ? '' : `#${parts.join('&')}`;
}

/** The address of the open workload (empty: none), and a function to open another. */
export function useOpened(): readonly [address: string, open: (address: string) => void] {
  const [opened, setOpened] = useState(() => openedIn(location.hash));
  useEvent(window, 'hashchange', () => setOpened(openedIn(location.hash)));
  const open = (address: string) => {
    history.replaceState(null, '', location.href.replace(/#.*/s, '') + withOpened(location.hash, address));
    setOpened(address);
  };
  return [opened, open];
}
