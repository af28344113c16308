import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { parseArgs } from 'node:util';

// Records AdmissionReviews, byte for byte, as an API server sends them: answers every request with
// "allowed, unchanged" and writes each body to a file. The reviews in bench/data come from it (see README.md).
//
//   node bench/record.ts --port 9443 --host 127.0.0.1 --cert tls.crt --key tls.key --out DIR

interface RecordedReview {
  request: {
    uid: string;
    namespace?: string;
    object?: { metadata?: { name?: string; generateName?: string } } | null;
  };
}

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '9443' },
    host: { type: 'string', default: '127.0.0.1' },
    cert: { type: 'string' },
    key: { type: 'string' },
    out: { type: 'string', default: '.' },
  },
});
if (values.cert === undefined || values.key === undefined) {
  console.error('record: --cert FILE and --key FILE are needed');
  process.exit(2);
}
mkdirSync(values.out, { recursive: true });

let recorded = 0;
const server = createServer(
  { cert: readFileSync(values.cert), key: readFileSync(values.key) },
  async (request, response) => {
    const body = await buffer(request);
    const { uid, namespace, object } = (JSON.parse(body.toString()) as RecordedReview).request;
    const name = object?.metadata?.name ?? object?.metadata?.generateName ?? '';
    recorded += 1;
    const file = join(values.out, `${String(recorded).padStart(4, '0')}-${namespace}-${name}.json`);
    writeFileSync(file, body);
    console.log(`${file}: ${body.length} bytes, ${request.method} ${request.url}`, request.headers);
    const answer = {
      apiVersion: 'admission.k8s.io/v1',
      kind: 'AdmissionReview',
      response: { uid, allowed: true },
    };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(answer));
  },
);
server.listen(Number(values.port), values.host, () => {
  console.log(`recording on https://${values.host}:${values.port} into ${values.out}`);
});
