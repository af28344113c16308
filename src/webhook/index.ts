export { adminApp } from './admin.ts';
export { admissionApp } from './admission.ts';
export { AdmissionMetrics } from './admission-metrics.ts';
export { canaryServer } from './canary-endpoint.ts';
export { estimatesPage } from './estimates.ts';
export { reportEndpointPart } from './part.ts';
export { adminServer, close, connectionsThatFit, listen, tlsOptions, webhookServer } from './server.ts';
