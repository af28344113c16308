import { openCluster } from './cluster.ts';

/*
 * Before each file: what another has left to do does not count as this one's. Here and not in a hook, whose time is limited
 * and says only that it is over.
 */
const cluster = await openCluster();
if (cluster.own) await cluster.calm();
await cluster.close();
