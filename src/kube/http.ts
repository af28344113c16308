/** node:http, without the 9 MB that an `import` of it costs: see serve/http.ts, which is not loaded with this. */
export const http = process.getBuiltinModule('node:http');
