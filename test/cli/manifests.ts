/** A Deployment by an author who never heard of Linger: comments, flow and block style, odd spaces. */
export const DEPLOYMENT = `# The shop.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: 3
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app:   web}
    spec:
      containers:
        - name: app   # serves
          image: registry.example/web:1
          ports:
            - containerPort: 8080
`;

const PLAN = `{"v":1,"wait":30,"grace":60,"baseGrace":30,"hook":"Sleep","containers":["app"],"policy":"built-in","why":"initial","digest":"00000000"}`;

/** The same, as it comes out: lines are inserted, none is changed. */
export const INJECTED_DEPLOYMENT = `# The shop.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: 3
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app:   web}
      annotations:
        linger.dev/plan: '${PLAN}'
    spec:
      containers:
        - name: app   # serves
          image: registry.example/web:1
          ports:
            - containerPort: 8080
          lifecycle:
            preStop:
              sleep:
                seconds: 30
      terminationGracePeriodSeconds: 60
`;

/** Nothing that Linger does anything for; written so that any re-rendering would show. */
export const UNTOUCHED = `# nothing to do here
kind:   ConfigMap
apiVersion: v1
metadata: { name: "settings" , labels: {a: 'b'} }
data:
    text: |-
        kept
          as it is
`;

export const JOB = `apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: shop}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: registry.example/web:1}]}}}
`;

export const SERVICE = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
`;

export const POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'web' },
  spec: { containers: [{ name: 'app', ports: [{ containerPort: 8080 }] }] },
};

/** Says 45 s and lets no pod say otherwise. */
export const POLICY = `apiVersion: linger.dev/v1alpha1
kind: ClusterTerminationPolicy
metadata: {name: base}
spec:
  wait: {from: Fixed, fixed: 45s}
  overrides: {pods: false}
`;
