import { ARCHITECTURES, type ImageFile, layerEntries, sha256, tar } from '../../deploy/layer.ts';

export { type ImageFile, sha256 };

export interface ImageDefinition {
  /** Full reference with registry and tag, for example `linger.test/app:1`. */
  readonly reference: string;
  readonly files: readonly ImageFile[];
  readonly entrypoint?: readonly string[];
  readonly command?: readonly string[];
  /** Beside PATH. */
  readonly environment?: Readonly<Record<string, string>>;
  /** `UID:GID`; numeric, so that kubelet can verify runAsNonRoot. Default: root. */
  readonly user?: string;
}

/**
 * A docker-archive (what `docker save` writes, and `ctr images import` and
 * `kind load image-archive` read) of one or several images: for each a layer and a
 * configuration, named by digest, and one manifest.json for all. Without time stamps:
 * the same input is the same archive.
 */
export function imageArchive(images: readonly ImageDefinition[]): Buffer {
  const entries = new Map<string, Buffer>();
  const manifest = images.map((image) => {
    const layer = tar(layerEntries(image.files));
    const layerName = `${sha256(layer)}.tar`;
    const configuration = Buffer.from(JSON.stringify(imageConfiguration(image, layer)));
    const configurationName = `${sha256(configuration)}.json`;
    // Images that share a layer share its file.
    entries.set(layerName, layer).set(configurationName, configuration);
    return { Config: configurationName, RepoTags: [image.reference], Layers: [layerName] };
  });
  entries.set('manifest.json', Buffer.from(JSON.stringify(manifest)));
  return tar([...entries].map(([path, content]) => ({ path, mode: 0o644, content })));
}

function imageConfiguration(image: ImageDefinition, layer: Buffer): object {
  const architecture = ARCHITECTURES[process.arch];
  if (architecture === undefined) throw new Error(`no image architecture known for ${process.arch}`);
  return {
    architecture,
    os: 'linux',
    config: {
      Env: ['PATH=/bin', ...Object.entries(image.environment ?? {}).map((pair) => pair.join('='))],
      ...(image.entrypoint === undefined ? {} : { Entrypoint: image.entrypoint }),
      ...(image.command === undefined ? {} : { Cmd: image.command }),
      ...(image.user === undefined ? {} : { User: image.user }),
    },
    rootfs: { type: 'layers', diff_ids: [`sha256:${sha256(layer)}`] },
  };
}
