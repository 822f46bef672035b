export const median = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
};

export const geometricMean = (list) =>
  Math.exp(list.reduce((sum, value) => sum + Math.log(value), 0) / list.length);
