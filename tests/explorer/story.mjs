// A year of one user's conversations, and some of two others: facts that change, plans, small talk that
// is dropped, a refusal to be remembered, instructions, and statements that contradict each other.

/** @typedef {{user: string, session: string, at: string, role?: string, speaker?: string, content: string}} Turn */

/** @type {Turn[]} */
export const turns = [
  ['mira', 's-2026-01', '2026-01-12T09:00:00Z', [
    'Hi there!',
    'My name is Mira Castellan and I work as a structural engineer in Hamburg.',
    'I am allergic to hazelnuts, so no pralines for me.',
    'Please always answer in short sentences.',
    'What is the capital of Portugal?',
    'Thanks!',
  ]],
  ['mira', 's-2026-03', '2026-03-02T18:30:00Z', [
    'My sister Jule is getting married on 12 September in Porto.',
    'I ride my bike to work every day, about 9 kilometres each way.',
    'My gym is FitBox at the harbour.',
    'Ok, cool.',
    'My monthly rent is 1,450 euros.',
  ]],
  ['mira', 's-2026-05', '2026-05-20T20:10:00Z', [
    'Actually, I moved to Lisbon last week.',
    'My new apartment in Alfama has a tiny balcony with a lemon tree.',
    'My monthly rent is 1,180 euros now.',
    'I cancelled the gym.',
    'Off the record: my boss is looking for another job.',
    'haha yes',
  ]],
  ['mira', 's-2026-08', '2026-08-14T07:45:00Z', [
    'I started learning Portuguese with a teacher called Beatriz, every Tuesday at 18:00.',
    'My bike was stolen in front of the station.',
    'I prefer tea over coffee in the evening.',
    'I decided to take the new bridge project in Setúbal.',
    'Is it going to rain tomorrow?',
  ]],
  ['mira', 's-2026-11', '2026-11-18T19:05:00Z', [
    'The wedding of Jule was wonderful, we danced until four.',
    'I am vegetarian since October.',
    'I am no longer vegetarian, I eat fish again.',
    'My Portuguese exam is on 14 December at 10:00.',
    'Remember that I can never eat hazelnuts.',
    'Good night!',
  ]],
  ['tobias', 'chat-1', '2026-10-02T11:00:00Z', [
    'I am the treasurer of our chess club in Graz.',
    'Our budget for 2027 is 20k.',
    'My daughter Nele is three years old and loves dinosaurs.',
    'Thank you so much!',
  ]],
  ['ada', 'chat-1', '2026-11-20T11:00:00Z', [
    'I live in Berlin.',
    'Actually, I moved to Lisbon last month.',
    'I am allergic to peanuts.',
    'ok',
  ]],
].flatMap(([user, session, from, contents]) =>
  /** @type {string[]} */ (contents).map((content, at) => ({
    user, session, content, at: new Date(Date.parse(from) + at * 90_000).toISOString(),
  })));

/** Sends the story once: events whose id was applied change nothing. @param {(kind: string, message: object) => Promise<any>} call */
export async function tell(call) {
  for (const [index, turn] of turns.entries()) await call('turn', { ...turn, id: `story-${index}` });
  for (const [month, end] of /** @type {const} */ ([['04', '.'], ['09', '!']])) {
    await call('remember', { user: 'mira', at: `2026-${month}-03T08:00:00Z`, content: `The spare key is with Mrs Albers on the second floor${end}`, id: `story-key-${month}` });
  }
}
