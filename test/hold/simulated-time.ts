import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { afterEach, beforeEach, vi } from 'vitest';

/** What a helper or a server may do between two steps: a call that is relayed crosses four connections. */
const ROUND_TRIPS = 4;
const STEP_MS = 10;

/**
 * From here on in this file, timers and clocks go by a simulated time that only {@link pass} moves; connections stay real. So
 * a busy machine changes no instant that a test compares.
 */
export function simulateTime(): void {
  let stop = () => {};
  beforeEach(async () => {
    const echo = createServer((socket) => socket.pipe(socket).on('error', () => undefined)).listen(
      0,
      '127.0.0.1',
    );
    await once(echo, 'listening');
    const socket = connect((echo.address() as AddressInfo).port, '127.0.0.1');
    await once(socket, 'connect');
    roundTrip = async () => {
      socket.write('.');
      await once(socket, 'data');
    };
    stop = () => {
      socket.destroy();
      echo.close();
    };
    vi.useFakeTimers({
      toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'Date', 'performance'],
    });
  });
  afterEach(() => {
    vi.useRealTimers();
    stop();
  });
}

let roundTrip = (): Promise<void> => Promise.reject(new Error('simulateTime() has not been called'));

/** What has been written to any loopback connection before is read when this resolves, and what that leads to. */
async function settle(): Promise<void> {
  for (let left = ROUND_TRIPS; left > 0; left -= 1) await roundTrip();
}

/** Lets simulated time pass, and everything that happens in it happen. */
export async function pass(milliseconds: number): Promise<void> {
  await settle();
  for (let left = milliseconds; left > 0; left -= STEP_MS) {
    vi.advanceTimersByTime(Math.min(STEP_MS, left));
    await settle();
  }
}
