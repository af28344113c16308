/**
 * The parts of @kubernetes/client-node that Linger uses. Loaded with `import()` and only if a cluster is connected: the
 * whole package takes 88 MB and half a second, and a bundler keeps only what is listed here.
 */
export {
  AdmissionregistrationV1Api,
  AuthenticationV1Api,
  AuthorizationV1Api,
  CoordinationV1Api,
  CoreV1Api,
  CustomObjectsApi,
  createConfiguration,
  DiscoveryV1Api,
  EventsV1Api,
  KubeConfig,
  ResponseContext,
  ServerConfiguration,
  VersionApi,
  wrapHttpLibrary,
} from '@kubernetes/client-node';
