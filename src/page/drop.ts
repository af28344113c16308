import { BUDGET, type DroppedFile } from './dropped.ts';

/** The files of a drop including those in its folders: as many as the page reads, plus one. */
export async function filesIn({ dataTransfer }: DragEvent): Promise<readonly DroppedFile[]> {
  const found: DroppedFile[] = [];
  // Read at once, because the list is empty after the event.
  const entries = [...(dataTransfer?.items ?? [])].flatMap((item) => item.webkitGetAsEntry() ?? []);
  const files = [...(dataTransfer?.files ?? [])];
  if (entries.length === 0) return files.map((file) => ({ path: file.name, file }));
  const walk = async (entry: FileSystemEntry): Promise<void> => {
    if (found.length > BUDGET.entries || /(^|\/)(\.git|node_modules)$/.test(entry.fullPath)) return;
    if (entry.isFile) {
      const file = await new Promise<File>((resolve, reject) =>
        (entry as FileSystemFileEntry).file(resolve, reject),
      );
      found.push({ path: entry.fullPath.replace(/^\//, ''), file });
      return;
    }
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    const some = () =>
      new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    // Entries come a hundred at a time; an empty batch is the end.
    for (let each = await some(); each.length > 0; each = await some())
      for (const inner of each) await walk(inner);
  };
  for (const entry of entries) await walk(entry);
  return found;
}

/** The files of an `<input type=file>`, in which people may also choose folders. */
export function chosenIn(input: HTMLInputElement): readonly DroppedFile[] {
  return [...(input.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}
