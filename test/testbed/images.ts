import { readFileSync } from 'node:fs';
import { type ImageDefinition, type ImageFile, imageArchive } from './image.ts';
import { findProgram, MissingRequirement } from './requirements.ts';

/**
 * The images a suite may use, with `imagePullPolicy: Never`. `.test` is reserved
 * (RFC 6761): a typo can never pull somebody's image.
 */
export const images = {
  /** The test application (app/main.go) and busybox's sh, sleep, wget; runs as 65532, read-only root works. */
  app: 'linger.test/app:1',
  /** The test application and nothing else: no shell, no sleep. */
  appDistroless: 'linger.test/app-distroless:1',
  /** busybox with sh, sleep, httpd, wget, nc, cat, echo, true, false, date, kill. */
  busybox: 'linger.test/busybox:1',
  /** The sandbox of every pod of our own cluster. */
  pause: 'linger.test/pause:1',
} as const;

/** An identity without a name, as distroless images use: Pod Security "restricted" asks for a non-root one. */
const NONROOT = '65532:65532';

/** Debian 12's wget dies of `-T SECONDS` (segmentation fault); without it, it works. */
const busyboxCommands = [
  'sh',
  'sleep',
  'httpd',
  'wget',
  'nc',
  'cat',
  'echo',
  'true',
  'false',
  'date',
  'kill',
];

/** One archive with every image, to import or to load. `app` is the path of the built application. */
export function buildImageArchive(app: string): Buffer {
  const busybox = readBusybox();
  const application: ImageFile = { path: '/bin/app', mode: 0o755, content: readFileSync(app) };
  const appImage = { files: [application], entrypoint: ['/bin/app'], user: NONROOT };
  const definitions: ImageDefinition[] = [
    {
      ...appImage,
      reference: images.app,
      files: [application, ...busyboxFiles(busybox, ['sh', 'sleep', 'wget'])],
    },
    { ...appImage, reference: images.appDistroless },
    { reference: images.busybox, files: busyboxFiles(busybox, busyboxCommands), command: ['/bin/sh'] },
    {
      reference: images.pause,
      files: busyboxFiles(busybox, ['sleep']),
      // 68 years, the longest sleep that busybox understands on every platform.
      command: ['/bin/sleep', '2147483647'],
    },
  ];
  return imageArchive(definitions);
}

/** An archive with busybox by another name: of what a pod's container runs, where only the name counts. */
export function busyboxNamed(reference: string): Buffer {
  return imageArchive([
    { reference, files: busyboxFiles(readBusybox(), busyboxCommands), command: ['/bin/sh'] },
  ]);
}

function busyboxFiles(content: Buffer, commands: readonly string[]): ImageFile[] {
  return [
    { path: '/bin/busybox', mode: 0o755, content },
    ...commands.map((command) => ({ path: `/bin/${command}`, linkTo: 'busybox' })),
  ];
}

function readBusybox(): Buffer {
  const file = findProgram('busybox');
  if (file === undefined) throw new MissingRequirement('no busybox in PATH; Debian: busybox-static');
  const content = readFileSync(file);
  if (isDynamic(content)) {
    throw new MissingRequirement(`${file} needs shared libraries, an image has none; Debian: busybox-static`);
  }
  return content;
}

/** PT_INTERP, elf(5): the program asks for a dynamic loader. */
const PT_INTERP = 3;

/** Whether a 64-bit little-endian ELF program needs a loader: looks through its program headers. */
function isDynamic(elf: Buffer): boolean {
  const offset = Number(elf.readBigUInt64LE(0x20));
  const size = elf.readUInt16LE(0x36);
  const count = elf.readUInt16LE(0x38);
  return Array.from({ length: count }, (_, i) => elf.readUInt32LE(offset + i * size)).includes(PT_INTERP);
}
