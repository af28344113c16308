/** The numbers of a list-watch. Milliseconds unless they say otherwise. */
export interface WatchLimits {
  /** Objects asked for in one page of a list. */
  readonly pageSize: number;
  /** Seconds that the server is asked to keep a watch: drawn from this range. */
  readonly watchSeconds: readonly [least: number, most: number];
  /** How long a watch may bring nothing at all. */
  readonly silenceMs: number;
  /** How long an answer may take to begin, or a list's to go on. */
  readonly answerMs: number;
  /** The pause after the first failure, drawn from its upper half; it doubles with each further one. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
  /** The longest that a server's Retry-After is followed. */
  readonly longestRetryAfterMs: number;
  /** A watch that lived this long was well: pauses begin at the first again. */
  readonly healthyMs: number;
  /** The longest pause after a watch that was well and was closed in good order. */
  readonly rewatchMs: number;
  /** A watch that is behind by less than this, and the time of one request, is current. */
  readonly currentWithinMs: number;
  /** Between two attempts to find out how far behind a watch is. */
  readonly currentRetryMs: number;
}

export const WATCH_LIMITS: WatchLimits = {
  // client-go's page (tools/pager): of pods with their managedFields 1 to 3 MB. Read item by item as it arrives, so its
  // length costs no memory here; but the API server has it whole in its own, and it is what is lost with a connection.
  pageSize: 500,
  // Short enough that watches move to another API server within 5 minutes (each is a connection of its own), and
  // drawn, so that they do not all move in the same second.
  watchSeconds: [240, 300],
  // The API server sends a bookmark every 60 s, rounded up by at most 2.3 s (cacher.go: defaultBookmarkFrequency,
  // buckets of 1 s, a timer of 1 to 1.25 s). It remembers events for at least 75 s (DefaultEventFreshDuration), so after
  // 70 s there are 5 left to reconnect before a resume could need a new list. But it leaves out a bookmark that is no
  // newer than the watch (cache_watcher.go): where nothing happens to any object of the kind, and etcd does not report
  // its progress (kubeadm lets it every 5 s; its own default is 10 minutes), a healthy watch is silent, too. That is
  // why silence only has a watch resumed, and counts as an interruption only if something was missed.
  silenceMs: 70_000,
  // The API server's own --request-timeout is 60 s: its answer tells more than our giving up would.
  answerMs: 65_000,
  // 250 to 500 ms, then 0.5 to 1 s, … 7.5 to 15 s. client-go goes on to 30 s, for 5,000 kubelets; six watches in each
  // of a few replicas are at most 2 requests a second to a server that has just come back.
  firstPauseMs: 500,
  longestPauseMs: 15_000,
  // Priority and Fairness asks for 1 s, a server that shuts down for 5 s; beyond a minute it is a mistake.
  longestRetryAfterMs: 60_000,
  // Twice the longest pause. In the long run a watch that always dies at once is begun 4 to 8 times a minute, one
  // that dies just before this 1.5 times, and one that dies just after it, with hardly a pause, twice.
  healthyMs: 30_000,
  // What happens meanwhile is seen late, so it is short; not 0, so that 6 watches that a server closes together when
  // it shuts down do not come back in the same millisecond.
  rewatchMs: 250,
  // The most by which streams may differ for the recorder (INVERSION_MS).
  currentWithinMs: 250,
  currentRetryMs: 1_000,
};
