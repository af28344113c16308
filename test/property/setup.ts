import fc from 'fast-check';
import { runs } from './runs.ts';

/** Where a property does not say how often it is tried: as fast-check has it. */
const USUAL = 100;

fc.configureGlobal(runs(USUAL));
