import { type ProveReport, proveReport } from '../../../src/prove/index.ts';
import { type Finished, shipped } from '../../cli/linger.ts';
import { type Cluster, waitUntil } from '../../testbed/cluster.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../../testbed/workloads.ts';
import { LINGER_IMAGE } from './linger-image.ts';
import { type GatewayLoss, type PollingGateway, startPollingGateway } from './polling-gateway.ts';

interface DeployOptions {
  /** Seconds between two steps of its rollouts, at least. */
  readonly apart?: number;
  /** Sleep of its own preStop hook; undefined: no hook. */
  readonly sleepSeconds?: number | undefined;
  /** Nodes over which its pods are spread evenly. Default: 1, without a constraint. */
  readonly nodes?: number;
}

interface RunThroughGateway {
  readonly code: number | null;
  readonly report: ProveReport;
  /** Requests that the gateway itself could not send on; how many. */
  readonly losses: readonly GatewayLoss[];
  readonly atGateway: number;
}

/** A Deployment behind a Service, on which `linger prove` is run as it is shipped. */
export class ProveStage {
  readonly #cluster: Cluster;
  readonly #namespace: string;

  constructor(cluster: Cluster, namespace: string) {
    this.#cluster = cluster;
    this.#namespace = namespace;
  }

  async deploy(
    name: string,
    replicas: number,
    { apart = 0, sleepSeconds, nodes = 1 }: DeployOptions = {},
  ): Promise<void> {
    const spread = { maxSkew: 1, topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'DoNotSchedule' };
    const labelSelector = { matchLabels: { app: name } };
    const podSpec = {
      ...(nodes > 1 && {
        topologySpreadConstraints: [{ ...spread, labelSelector, nodeTaintsPolicy: 'Honor' }],
      }),
      ...(sleepSeconds !== undefined && { terminationGracePeriodSeconds: 30 + sleepSeconds }),
    };
    const container =
      sleepSeconds === undefined ? {} : { lifecycle: { preStop: { sleep: { seconds: sleepSeconds } } } };
    const application = { namespace: this.#namespace, name, replicas, podSpec, container };
    await this.#cluster.create(applicationService(application));
    const deployment = applicationDeployment(application);
    const paced = { ...deployment, spec: { ...deployment.spec, minReadySeconds: apart } };
    await this.#cluster.create(paced);
    await this.#rolledOut(name, replicas);
  }

  /** Lets its pods sleep before they end, and waits until all do. */
  async sleep(name: string, replicas: number, seconds: number): Promise<void> {
    const containers = [{ name: 'app', lifecycle: { preStop: { sleep: { seconds } } } }];
    const spec = { template: { spec: { terminationGracePeriodSeconds: seconds + 5, containers } } };
    const path = `/apis/apps/v1/namespaces/${this.#namespace}/deployments/${name}`;
    const contentType = 'application/strategic-merge-patch+json';
    await this.#cluster.api.call('PATCH', path, { body: { spec }, contentType });
    await this.settled(name, replicas);
  }

  /** Resolves once it has exactly `replicas` pods, all of its newest template. */
  async settled(name: string, replicas: number): Promise<void> {
    await this.#rolledOut(name, replicas);
    await waitUntil(
      'the old pods to be gone',
      async () => (await this.pods(`app=${name}`)).length === replicas,
    );
  }

  pods(selector: string) {
    return this.#cluster.list({ apiVersion: 'v1', kind: 'Pod', namespace: this.#namespace }, selector);
  }

  arguments(args: readonly string[]): readonly string[] {
    return ['prove', '-n', this.#namespace, '--yes', '--image', LINGER_IMAGE, ...args];
  }

  prove(args: readonly string[], kubeconfig = this.#cluster.kubeconfig): Promise<Finished> {
    return shipped([...this.arguments(args), '--kubeconfig', kubeconfig]);
  }

  gateway(
    service: string,
    intervalMs: number,
    { delayMs = 0, pagePort }: { readonly delayMs?: number; readonly pagePort?: number } = {},
  ): Promise<PollingGateway> {
    const options = { namespace: this.#namespace, service, intervalMs, delayMs, pagePort };
    return startPollingGateway(this.#cluster, options);
  }

  /** A run with a gateway that is called edge. */
  async through(gateway: PollingGateway, args: readonly string[]): Promise<RunThroughGateway> {
    await waitUntil('the gateway to be through the last rollout', () => gateway.isUpToDate());
    gateway.losses();
    const { code, stdout, stderr } = await this.prove([
      ...args,
      '--url',
      `edge=${gateway.url}`,
      '-o',
      'json',
    ]);
    if (stdout === '') throw new Error(stderr);
    const report = proveReport.parse(JSON.parse(stdout));
    console.log([report.verdict, ...report.notes].join('\n'));
    const losses = gateway.losses();
    return { code, report, atGateway: losses.length, losses };
  }

  async #rolledOut(name: string, replicas: number): Promise<void> {
    const deployment = applicationDeployment({ namespace: this.#namespace, name });
    await this.#cluster.waitFor<DeploymentObject>(deployment, (each) => isRolledOut(each, replicas));
  }
}
