import { describe, expect, it } from 'vitest';
import { Interruptions } from '../../../src/core/lag/endpoint-changes.ts';

function begun(): Interruptions {
  const interruptions = new Interruptions();
  interruptions.current('pods', 0);
  interruptions.current('Endpoints', 0);
  return interruptions;
}

describe('an interruption', () => {
  it('goes from the break until the stream is current again', () => {
    const interruptions = begun();
    interruptions.broken('pods', 100);
    expect(interruptions.all).toEqual([{ stream: 'pods', since: 100, until: undefined, cause: undefined }]);
    interruptions.current('pods', 300);
    expect(interruptions.all).toEqual([{ stream: 'pods', since: 100, until: 300, cause: undefined }]);
  });

  it('is one, however often the stream breaks before it is current again', () => {
    const interruptions = begun();
    interruptions.broken('pods', 100);
    interruptions.broken('pods', 200);
    interruptions.current('pods', 300);
    expect(interruptions.all).toMatchObject([{ since: 100, until: 300 }]);
  });

  it('keeps its first cause', () => {
    const interruptions = begun();
    interruptions.because('pods', 'before it, of something else');
    interruptions.broken('pods', 100);
    interruptions.because('pods', 'cut');
    interruptions.because('pods', 'unreachable');
    expect(interruptions.all).toMatchObject([{ cause: 'cut' }]);
  });

  it('is of one stream; those that go on come last', () => {
    const interruptions = begun();
    interruptions.broken('pods', 100);
    interruptions.broken('Endpoints', 200);
    interruptions.current('Endpoints', 300);
    expect(interruptions.all.map(({ stream }) => stream)).toEqual(['Endpoints', 'pods']);
  });

  it('is none before the stream was current for the first time', () => {
    const interruptions = new Interruptions();
    interruptions.broken('pods', 0);
    interruptions.current('pods', 100);
    expect(interruptions.all).toEqual([]);
  });
});

it('has begun once every stream has been current', () => {
  const interruptions = begun();
  interruptions.broken('pods', 100);
  expect(interruptions.begun(['pods', 'Endpoints'])).toBe(true);
  expect(interruptions.begun(['pods', 'services'])).toBe(false);
});
