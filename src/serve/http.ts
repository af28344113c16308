/**
 * node:http. An `import` of its values would read each of its exports once, and with them the getters of WebSocket and
 * its kin, which load a whole HTTP client (undici) that nobody here uses: 9 MB of resident memory, on Node 24.9.
 */
export const http = process.getBuiltinModule('node:http');
