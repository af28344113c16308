/** Lines with columns as wide as their widest cell; nothing stands behind the last one. */
export function columns(
  rows: readonly (readonly string[])[],
  alignment: readonly ('left' | 'right')[],
): readonly string[] {
  const widths = alignment.map((_, column) => Math.max(0, ...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return alignment[column] === 'right' ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd(),
  );
}
