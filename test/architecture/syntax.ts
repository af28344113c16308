import { type Node, type SourceFile, SyntaxKind } from 'typescript/unstable/ast';
import { createVirtualFileSystem } from 'typescript/unstable/fs';
import { API } from 'typescript/unstable/sync';

/** A name that a file uses, or a module that it imports, and the line (from 1) on which it does. */
export interface Mention {
  readonly text: string;
  readonly line: number;
}

/** What the rules look at in one source file. */
export interface SourceSyntax {
  /** Module specifiers of static imports, re-exports, `import(…)` types and type-only ones. */
  readonly imports: readonly Mention[];
  /** Calls of `import(…)`; the text is the specifier, or `…` where it is computed. */
  readonly dynamicImports: readonly Mention[];
  /** Identifiers that are not the name of a member: `a` of `a.b`, `c` of `{ b: c }`. */
  readonly names: readonly Mention[];
  /** `a.b`, also as `a["b"]` and as `const { b } = a`; `a.…` where the name is computed; `import.meta`. */
  readonly members: readonly Mention[];
}

/**
 * Parses TypeScript with the compiler's own parser; comments and strings are thereby no code.
 * @param files path → text; paths are relative and have forward slashes
 */
export function parseSources(files: ReadonlyMap<string, string>): ReadonlyMap<string, SourceSyntax> {
  const config = {
    compilerOptions: {
      noLib: true,
      noResolve: true,
      types: [],
      module: 'nodenext',
      jsx: 'preserve',
      allowImportingTsExtensions: true,
    },
    include: ['**/*.ts', '**/*.tsx'],
  };
  const virtual = Object.fromEntries([...files].map(([path, text]) => [`/${path}`, text]));
  const fs = createVirtualFileSystem({ ...virtual, '/tsconfig.json': JSON.stringify(config) });
  const api = new API({ cwd: '/', fs });
  try {
    const snapshot = api.updateSnapshot({ openProjects: ['/tsconfig.json'] });
    const program = snapshot.getProject('/tsconfig.json')?.program;
    const syntaxes = new Map(
      [...files.keys()].map((path) => [path, syntaxOf(path, program?.getSourceFile(`/${path}`))]),
    );
    snapshot.dispose();
    return syntaxes;
  } finally {
    api.close();
  }
}

function syntaxOf(path: string, source: SourceFile | undefined): SourceSyntax {
  if (source === undefined) throw new Error(`${path} was not parsed`);
  const found = { imports: [], dynamicImports: [], names: [], members: [] } as {
    [K in keyof SourceSyntax]: Mention[];
  };
  const { text } = source;
  const visit = (node: Node): void => {
    const mention = (what: string): Mention => {
      // A node begins with the space and the comments before it.
      const end = text.slice(0, node.getStart(source));
      return { text: what, line: end.split('\n').length };
    };
    const specifier = specifierOf(node, source);
    if (specifier !== undefined) found.imports.push(mention(specifier));
    const dynamic = dynamicImportOf(node, source);
    if (dynamic !== undefined) found.dynamicImports.push(mention(dynamic));
    found.members.push(...membersOf(node, source).map(mention));
    if (node.kind === SyntaxKind.Identifier && !isMemberName(node))
      found.names.push(mention(node.getText(source)));
    node.forEachChild((child) => {
      visit(child);
      return undefined;
    });
  };
  visit(source);
  return found;
}

/** A node's parts by their grammatical names; which of them exist depends on its kind. */
type Parts = { readonly [part: string]: Node | undefined };
const parts = (node: Node): Parts => node as unknown as Parts;

const MODULE_DECLARATIONS: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.ImportDeclaration,
  SyntaxKind.ExportDeclaration,
]);

function specifierOf(node: Node, source: SourceFile): string | undefined {
  if (MODULE_DECLARATIONS.has(node.kind)) return unquoted(parts(node).moduleSpecifier, source);
  if (node.kind === SyntaxKind.ImportType)
    return unquoted(parts(parts(node).argument as Node).literal, source);
  if (node.kind === SyntaxKind.ExternalModuleReference) return unquoted(parts(node).expression, source);
  return undefined;
}

function dynamicImportOf(node: Node, source: SourceFile): string | undefined {
  if (node.kind !== SyntaxKind.CallExpression || parts(node).expression?.kind !== SyntaxKind.ImportKeyword)
    return undefined;
  const [argument] = (node as unknown as { arguments: readonly Node[] }).arguments;
  return argument?.kind === SyntaxKind.StringLiteral ? unquoted(argument, source) : '…';
}

function membersOf(node: Node, source: SourceFile): readonly string[] {
  if (node.kind === SyntaxKind.MetaProperty) return [node.getText(source)];
  if (node.kind === SyntaxKind.VariableDeclaration) return destructured(node, source);
  const { expression, name, argumentExpression } = parts(node);
  if (expression?.kind !== SyntaxKind.Identifier) return [];
  const object = expression.getText(source);
  if (node.kind === SyntaxKind.PropertyAccessExpression) return [`${object}.${name?.getText(source)}`];
  if (node.kind !== SyntaxKind.ElementAccessExpression) return [];
  return [`${object}.${unquoted(argumentExpression, source) ?? '…'}`];
}

/** `const { env: e } = process` uses `process.env`. */
function destructured(declaration: Node, source: SourceFile): readonly string[] {
  const { name, initializer } = parts(declaration);
  if (name?.kind !== SyntaxKind.ObjectBindingPattern || initializer?.kind !== SyntaxKind.Identifier)
    return [];
  const elements = (name as unknown as { elements: readonly Node[] }).elements;
  return elements.map((element) => {
    const { propertyName, name: bound } = parts(element);
    return `${initializer.getText(source)}.${(propertyName ?? bound)?.getText(source)}`;
  });
}

/** Parents whose `name` (or `propertyName`) is a member's and not a variable's. */
const MEMBER_NAMES: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.PropertyAccessExpression,
  SyntaxKind.PropertyAssignment,
  SyntaxKind.PropertySignature,
  SyntaxKind.PropertyDeclaration,
  SyntaxKind.MethodDeclaration,
  SyntaxKind.MethodSignature,
  SyntaxKind.GetAccessor,
  SyntaxKind.SetAccessor,
  SyntaxKind.EnumMember,
  SyntaxKind.MetaProperty,
  SyntaxKind.NamedTupleMember,
]);

function isMemberName(node: Node): boolean {
  const { parent } = node;
  const { name, propertyName } = parts(parent);
  if (parent.kind === SyntaxKind.BindingElement) return isSame(propertyName, node);
  return MEMBER_NAMES.has(parent.kind) && isSame(name, node);
}

/** The tree is read lazily, so the same node may be two objects. */
function isSame(one: Node | undefined, other: Node): boolean {
  return one !== undefined && one.pos === other.pos && one.kind === other.kind;
}

function unquoted(literal: Node | undefined, source: SourceFile): string | undefined {
  return literal?.kind === SyntaxKind.StringLiteral ? literal.getText(source).slice(1, -1) : undefined;
}
