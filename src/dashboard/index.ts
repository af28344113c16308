export { newToken } from './access.ts';
export { pageApp, type Sources } from './app.ts';
export { readPage } from './assets.ts';
export {
  type ApiError,
  type ApiRoot,
  apiError,
  apiRoot,
  type ExplainReport,
  explainReport,
  type PlaygroundReport,
  type PlaygroundRequest,
  type Problem,
  playgroundReport,
} from './contract.ts';
