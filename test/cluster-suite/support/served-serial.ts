import { connect } from 'node:tls';

/** The serial number of the certificate that a replica serves. */
export function serialServedAt(address: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port: 8443, rejectUnauthorized: false }, () => {
      const held = socket.getPeerX509Certificate()?.serialNumber ?? '';
      socket.destroy();
      resolve(held);
    });
    socket.on('error', reject);
  });
}
