import { type AtEnd, connect, requestBytes } from '../webhook/connection.ts';
import { bodyOf } from '../webhook/reviews.ts';
import { operationsOf, type ReviewResponse, responseOf } from '../webhook/webhook.ts';
import type { Serving } from './linger.ts';

/** What the server answers to a review of an ordinary pod, on a connection of its own. */
async function answerNow(server: Serving, atEnd: AtEnd): Promise<ReviewResponse> {
  const connection = await connect(server, atEnd);
  connection.write(requestBytes(bodyOf()));
  const response = responseOf(await connection.answer());
  connection.destroy();
  return response;
}

export async function reasonNow(server: Serving, atEnd: AtEnd): Promise<string | undefined> {
  return (await answerNow(server, atEnd)).auditAnnotations?.reason;
}

/** The wait that the server gives to a pod now, in seconds. */
export async function waitNow(server: Serving, atEnd: AtEnd): Promise<number> {
  const answer = await answerNow(server, atEnd);
  const [first] = operationsOf(answer);
  if (first === undefined) throw new Error(`no patch: ${JSON.stringify(answer)}`);
  const { value } = first as unknown as { value: { preStop: { sleep: { seconds: number } } } };
  return value.preStop.sleep.seconds;
}
