/**
 * From what on something is worth a finding. None of them is a matter of taste alone: each is a limit of Kubernetes'
 * own, or the least that a wait of whole seconds can tell apart.
 */

/** Waits are whole seconds, and a lag under one hides in any of them. */
export const SLOW_SECONDS = 1;

/** A backlog that drains within this is over before the next scrape of anybody's. */
export const SHORT_DRAIN_SECONDS = 1;

/** At both ends of the interval; twice the default number of workers. */
export const LASTING_BACKLOG = 10;

/** With one scrape there is no rate: at the default 20 writes a second, 50 Services take 2.5 s. */
export const BACKLOG_WITHOUT_RATE = 50;

/** client-go calls a wait for the limiter long from 50 ms on (longThrottleLatency); twice that is no jitter. */
export const THROTTLED_SECONDS = 0.1;

/** Kubernetes' own objective for writes is a p99 within 1 s (SIG Scalability, API call latency). */
export const SLOW_SHARE = 0.01;

/** A mean this long lets 5 workers write no more than the default 20 a second. */
export const SLOW_MEAN_SECONDS = 0.25;

/** With fewer, a single slow request would be more than a hundredth. */
export const FEWEST_REQUESTS = 20;

/** --request-timeout of the API server: nothing that is well takes longer. */
export const STUCK_SECONDS = 60;

/** A Service in five, and no fewer than a hundred: 5 s of the default 20 writes a second. */
export const STORM_SHARE = 0.2;
export const STORM_SERVICES = 100;

/** After a takeover every Service is synced once: 13,000 of them (S1), at the default 20 a second, take 11 minutes. */
export const SETTLED_SECONDS = 15 * 60;
