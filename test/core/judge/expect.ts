import { DATA, rewriteExpectations } from './expectations.ts';

// npm run expect: writes what the audit says today into the lines `# expect:`. The diff is to be read: each changed line is a
// workload that is judged differently.

const changed = rewriteExpectations();
console.log(`${changed} lines changed in ${DATA}; read them: git diff ${DATA}`);
