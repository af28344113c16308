import { onTestFinished } from 'vitest';
import { MODEL_PATH, ModelApiServer } from './api-server.ts';
import type { Arena } from './arena.ts';
import { Gateway } from './gateway.ts';

/** A model API server behind a gateway, until the test's end. */
export async function openModel(): Promise<{ readonly arena: Arena; readonly model: ModelApiServer }> {
  const model = await ModelApiServer.start();
  const gateway = await Gateway.start({ url: model.url });
  onTestFinished(async () => {
    await gateway.close();
    await model.close();
  });
  const arena: Arena = {
    gateway,
    path: MODEL_PATH,
    put: async (name, value) => model.put(name, value),
    remove: async (name) => model.remove(name),
    truth: async () =>
      new Map([...model.objects].map(([name, { metadata }]) => [name, metadata.resourceVersion])),
  };
  return { arena, model };
}
