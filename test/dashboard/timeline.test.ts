import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { LingerError } from '../../src/core/api/index.ts';
import { assess, terminationSummary } from '../../src/core/timeline/index.ts';
import { apiError, dashboardApp, type TimelineView, timelineView } from '../../src/dashboard/index.ts';
import { CLEAR, SENT, UNKNOWN } from '../core/timeline/sample-termination.ts';

const TOKEN = 'the-token-of-this-run';
const root = { version: '0.0.0', views: ['timeline'], source: null } as const;

const asked = (timeline: () => Promise<TimelineView>) =>
  request(dashboardApp({ root, timeline }, TOKEN, new Map()))
    .get('/api/v1/timeline')
    .set({ Host: '127.0.0.1:8089', Authorization: `Bearer ${TOKEN}` });

describe('GET /api/v1/timeline', () => {
  it('has the terminations, each with what is known of its end', async () => {
    const terminations = [CLEAR, SENT, UNKNOWN].map((each) => ({
      ...each,
      ...assess(each),
      text: terminationSummary(each),
    }));
    const { status, body } = await asked(async () => ({ asOf: 7, terminations }));
    expect(status).toBe(200);
    expect(timelineView.parse(body).terminations.map(({ afterSigterm }) => afterSigterm)).toEqual([
      'clear',
      'sent',
      'unknown',
    ]);
  });

  it('without the right, says which', async () => {
    const { status, body } = await asked(async () => {
      throw new LingerError('cluster-denied', 'cannot get configmaps');
    });
    expect([status, apiError.parse(body).error]).toEqual([
      502,
      { code: 'cluster-denied', message: 'cannot get configmaps' },
    ]);
  });
});
