-- A template in a file is a bound parameter, as in `command`.
WITH orders (id, amount) AS (VALUES (1, 10), (2, 25), (3, 40))
SELECT id, amount FROM orders WHERE amount >= {{ workload.least }} ORDER BY id
