import type { PlaygroundRequest } from '../dashboard/index.ts';
import { answerOffLoop } from '../timing/index.ts';
import { explainTexts } from './playground-report.ts';

answerOffLoop((request: PlaygroundRequest) => [JSON.stringify(explainTexts(request))]);
