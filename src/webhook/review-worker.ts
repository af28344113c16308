import { answerOffLoop } from '../timing/index.ts';
import { screenReview } from './review.ts';

answerOffLoop((body: Uint8Array) => [
  screenReview(Buffer.from(body.buffer, body.byteOffset, body.byteLength)),
]);
