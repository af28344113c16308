export { amount, count, grouped, percent, rate, span } from './amounts.ts';
export { canonicalAddress } from './canonical-address.ts';
export {
  EXCLUDABLE_KINDS,
  EXISTING_HOOK_RULES,
  type ExcludableKind,
  type ExistingHookRule,
  type HoldDelivery,
  MODES,
  type Mode,
  POD_SCOPES,
  type PodScope,
  WAIT_SOURCES,
  type WaitSource,
} from './choices.ts';
export {
  type ConsumerStatus,
  type DeregisterSpec,
  type DiscoveryConsumerSpec,
  deregisterRequest,
  discoveryConsumerSpec,
  discoveryConsumerStatus,
  type EndpointsSpec,
  type InspectSpec,
  type XdsSpec,
} from './discovery-consumer.ts';
export {
  type ClusterTerminationPolicy,
  cautiousPolicy,
  type DiscoveryConsumer,
  DOCUMENT_SCHEMAS,
  isLingerObject,
  type LingerDocument,
  type LingerKind,
  parseDocument,
  speaksOfRestraint,
  type TerminationPolicy,
} from './documents.ts';
export { DURATION_HINT, formatDuration, LONGEST_DURATION, parseDuration } from './duration.ts';
export { asError, ERRORS, type ErrorCode, fewOf, LingerError, printable, UserError } from './errors.ts';
export { EXITS } from './exit-codes.ts';
export type { Curable, Explained } from './explained.ts';
export { labelSelector } from './fields.ts';
export {
  HOLD_HELPER,
  HOLD_MOUNT,
  HOLD_SERVICE,
  HOLD_VOLUME,
  type HoldCall,
  type HoldToken,
  type HoldVolume,
  holdConfigMap,
  holdKey,
  holdTokenTime,
  holdVolume,
  isHoldToken,
} from './hold.ts';
export {
  type HookReading,
  type LifecycleHandler,
  leastSecondsOf,
  plainSleep,
  readableHook,
  readHook,
  readingInWords,
} from './hook-reader.ts';
export {
  HOOK_CHOICES,
  HOOK_NAMES,
  HOOKS,
  type HookChoice,
  type HookContents,
  type HookKind,
  type HookName,
  isHookName,
  runsHelper,
} from './hooks.ts';
export {
  atPointer,
  fingerprint,
  isAbsentOr,
  isRecord,
  isSameJson,
  isString,
  isStringMap,
  jsonIn,
  listOf,
  memberAt,
  mixedHash,
  nonTexts,
  pointer,
  readEntries,
  recordsAt,
  textOf,
} from './json.ts';
export {
  type NamespaceRecord,
  namespaceRecord,
  neverWithdraws,
  type ServiceIndex,
  type ServiceRecord,
  selectedLabels,
  selectsNamespace,
  selectsPod,
  serviceIndex,
  servicesSelecting,
  TOLERATE_UNREADY,
  unseenNamespace,
} from './kubernetes-objects.ts';
export {
  Budget,
  FOREIGN_LIMITS,
  type ForeignLimit,
  type ForeignSource,
  type ReaderLimits,
  setNewest,
} from './limits.ts';
export {
  ANNOTATION,
  ANNOTATION_PREFIX,
  API_VERSION,
  BUILT_IN_CONSUMERS,
  CANARY_IDENTITY_HEADER,
  FLOOR,
  GROUP,
  MIRROR_POD_ANNOTATION,
  NAMESPACE_NAME_LABEL,
  NEVER_ASKED,
  objectKey,
} from './names.ts';
export {
  PAGE_FORMAT_NAMES,
  PAGE_FORMATS,
  type PageFormat,
  pageReader,
  usualPath,
} from './page-formats/page-formats.ts';
export {
  authorityOf,
  endpointIn,
  LONGEST_FILTER,
  LONGEST_PAGE,
  MOST_CLUSTERS,
  type PageEndpoint,
  PageFindings,
  type PageFormatKind,
  type PageReader,
} from './page-formats/page-reader.ts';
export { type FactsOf, type OwnStatus, parseReplicaStatus, type ReplicaStatus } from './replica-status.ts';
export {
  CURSOR_HEADER,
  REPORT_RESULTS,
  type ReportRequest,
  type ReportResult,
  reportRequest,
  reportsOpenApi,
} from './report-request.ts';
export {
  EVERYTHING,
  fitsPattern,
  isCalledForPods,
  isSelected,
  type LabelRequirement,
  type LabelSelector,
  type Labels,
  labelOf,
  labelQueryOf,
  MOST_VALUES,
  NO_LABELS,
  parseLabelQuery,
  selects,
  type WebhookSelectors,
} from './selector.ts';
export { FairLog, inTurns, Shares } from './shares.ts';
export { type Overview, overview } from './status-overview.ts';
export { taken } from './steps.ts';
export { fillTemplate, type TemplateValues } from './template.ts';
export {
  type ClusterTerminationPolicySpec,
  clusterTerminationPolicySpec,
  type PolicyStatus,
  terminationPolicySpec,
} from './termination-policy.ts';
